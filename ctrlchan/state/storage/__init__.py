"""Snapshots on disk, Arrow tables, and the schemas of everything that is stored."""
