"""Models from and for other people: importers of their weights, uploads with a card."""
