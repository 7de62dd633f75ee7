"""From a graph to tile programs: index terms, definitions, kernel formation, bounds, memory plan."""
