import sys

from container_engine.cli.main import main

sys.exit(main())
