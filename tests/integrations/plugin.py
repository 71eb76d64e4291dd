"""How tests load the plugin of pytest: as installed, or by name where the package is only on the path."""

from importlib.metadata import entry_points

PLUGIN = "hessdiag.integrations.pytest_plugin"
INSTALLED = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
LOADED = [] if INSTALLED else ["-p", PLUGIN]
