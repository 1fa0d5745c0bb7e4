"""Real environments: which there are, their pixels, and the labels behind the pixels."""
