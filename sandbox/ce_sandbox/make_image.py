"""`sandbox/make-image`: make one of the small images."""

import argparse

from ce_sandbox import images
from ce_sandbox.layout import Layout, SandboxError


def arguments(argv: list[str]) -> argparse.Namespace:
    listing = "; ".join(f"{name}: {recipe.what}" for name, recipe in images.RECIPES.items())
    parser = argparse.ArgumentParser(
        prog="sandbox/make-image",
        description="Make a small image, unless it is there, and print its path.",
        epilog=listing,
    )
    parser.add_argument("name", choices=[*sorted(images.RECIPES), "all"])
    return parser.parse_args(argv)


def main(argv: list[str], layout: Layout) -> int:
    args = arguments(argv)
    if not layout.images.is_dir():
        raise SandboxError(f"{layout.dir}: no sandbox here", "sandbox/up")
    for name in sorted(images.RECIPES) if args.name == "all" else [args.name]:
        print(images.provide(layout, name))
    return 0
