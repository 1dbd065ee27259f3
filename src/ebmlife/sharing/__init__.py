"""Exchange of models: importers for foreign weights, and uploads with a model card."""
