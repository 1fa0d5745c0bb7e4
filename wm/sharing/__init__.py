"""Runs that travel: bundled with a card, published in a folder or on the Hub, and received as a stranger's."""
