.PHONY: ext
ext:
	.venv/bin/python setup.py -q build_ext --inplace
