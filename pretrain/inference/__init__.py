"""Uses a trained run: embeds text and generates it."""
