"""What an administrator decides for all users: the model, and the files that it is read from."""

from container_engine.site.model import Policy as Policy
from container_engine.site.model import SiteConfig as SiteConfig
