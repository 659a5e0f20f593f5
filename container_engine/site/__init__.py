"""The administrator's configuration for all users: its model and its files."""

from container_engine.site.model import Policy as Policy
from container_engine.site.model import SiteConfig as SiteConfig
