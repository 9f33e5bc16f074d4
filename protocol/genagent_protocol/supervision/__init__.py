"""The daemon's table of agents, names, monitors, groups and restarts, as a pure value.

`advance(table, input)` returns the next table and the orders that follow from the
input; it reads no clock, starts nothing and never fails halfway.
"""
