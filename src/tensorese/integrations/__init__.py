"""Plug-ins for other tools: stock MetaSchedule."""
