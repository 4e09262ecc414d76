"""The IDE stubs in php/stubs are exactly the functions and constants that howdah registers."""

import json
import subprocess

from support.server import REPOSITORY

STUBS = REPOSITORY / "php/stubs"
ONLY_IN_WORKER_MODE = ("worker_mode.php", "frankenphp.php")

# `functions($names)` describes functions by their names; it runs in a worker, and in PHP's command line with the stubs.
REFLECTION = r"""
function type(?ReflectionType $type): string { return (string) $type; }
function parameter(ReflectionParameter $parameter): array {
    return [
        $parameter->getName(), type($parameter->getType()), $parameter->isPassedByReference(), $parameter->isVariadic(),
        $parameter->isDefaultValueAvailable() ? $parameter->getDefaultValue() : 'required',
    ];
}
function functions(array $names): array {
    $found = [];
    foreach ($names as $name) {
        $function = new ReflectionFunction($name);
        $found[strtolower($name)] = [array_map('parameter', $function->getParameters()), type($function->getReturnType())];
    }
    ksort($found);
    return $found;
}
function constants(array $all): array {
    return array_filter($all, fn (string $name) => preg_match('/^(FRANKENPHP|HOWDAH)_/', $name), ARRAY_FILTER_USE_KEY);
}
"""
REGISTERED = "json_encode([functions(get_extension_funcs('howdah')), constants(get_defined_constants())])"
LOOP = "while (howdah\\handle_request(function (): void { echo " + REGISTERED + "; })) { }"


def described(*files: str) -> list:
    """The functions and constants that the stubs declare."""
    code = REFLECTION + "foreach (json_decode($argv[1]) as $file) { require $file; }"
    code += "echo json_encode([functions(get_defined_functions()['user']), constants(get_defined_constants())]);"
    paths = json.dumps([str(STUBS / file) for file in files])
    result = subprocess.run(["php", "-n", "-r", code, paths], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
    functions, constants = json.loads(result.stdout)
    for helper in ("type", "parameter", "functions", "constants"):
        del functions[helper]
    return [functions, constants]


def test_the_stubs_are_the_functions_of_worker_mode(start_worker):
    site = start_worker(boot=REFLECTION, loop=LOOP)
    registered = site.server.get("/").json()
    assert registered == described("both_modes.php", *ONLY_IN_WORKER_MODE)
    assert "howdah\\handle_request" in registered[0] and registered[1], "the comparison covers functions and constants"


def test_the_stubs_of_both_modes_are_the_functions_of_classic_mode(folder, serve):
    folder.php("index.php", REFLECTION + "echo " + REGISTERED + ";")
    functions, constants = serve().get("/").json()
    # PHP encodes an empty array as a list.
    assert [functions, constants or []] == described("both_modes.php")


def test_every_stub_is_compared():
    assert {path.name for path in STUBS.glob("*.php")} == {"both_modes.php", *ONLY_IN_WORKER_MODE}
