"""What all jobs share: the Spark session, its Java, tables, the data source, progress, failures."""
