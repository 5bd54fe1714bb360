"""Studies as people write them: a YAML file, its schema, and those that the package ships."""
