"""The live view: the pulse, its broadcasts and the streams."""
