"""The algebra e-graph: encode index terms, saturate goal-directed rules, extract terms. The only user of
egglog.
"""
