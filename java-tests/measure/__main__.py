"""Measures Tickwalk: what it costs, what it gets right, and what it leaves behind.

  python3 java-tests/measure PROGRAM [ARGUMENT]...     from any folder
  python3 -m measure PROGRAM [ARGUMENT]...             from java-tests/

`python3 java-tests/measure PROGRAM --help` describes a program.
"""

import ast
import pathlib
import runpy
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
# Started as a folder, Python looks for modules inside it; the programs import each other as parts of the package.
sys.path[:] = [str(FOLDER.parent), *(path for path in sys.path if pathlib.Path(path).resolve() != FOLDER)]


def programs():
    """Returns the programs, by name, with the first line of their descriptions."""
    found = {}
    for path in sorted(FOLDER.glob("[!_]*.py")):
        text = path.read_text()
        if '\nif __name__ == "__main__":' in text:
            description = ast.get_docstring(ast.parse(text)) or ""
            found[path.stem.replace("_", "-")] = description.partition("\n")[0]
    return found


def main():
    known = programs()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        print("Programs:")
        for name, description in known.items():
            print(f"  {name:17} {description}")
        print("\nScripts beside them: aarch64, api-speed, jmh; each begins with its description.")
        return
    name = sys.argv.pop(1).replace("_", "-")
    if name not in known:
        sys.exit(f"measure: no program '{name}'; --help lists them")
    sys.argv[0] = name
    runpy.run_module(f"measure.{name.replace('-', '_')}", run_name="__main__")


if __name__ == "__main__":
    main()
