"""A session of the database in which batches run without writing anything that is real."""
