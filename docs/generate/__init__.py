"""Writers of the pages that are made from the code; a test says when one is old."""
