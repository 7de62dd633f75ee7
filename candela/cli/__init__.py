"""The command line: one Typer app, loaded lazily; platform commands speak only through the client."""
