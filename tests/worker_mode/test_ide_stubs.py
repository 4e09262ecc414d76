"""The IDE stubs in php/stubs are exactly the functions, classes and constants that howdah registers."""

import json
import subprocess

from support.server import REPOSITORY

STUBS = REPOSITORY / "php/stubs"
ONLY_IN_WORKER_MODE = ("worker_mode.php", "frankenphp.php")
ONLY_IN_ASYNC_MODE = ("async_mode.php",)

# `functions($names)` describes functions by their names; it runs in a worker, and in PHP's command line with the stubs.
REFLECTION = r"""
function type(?ReflectionType $type): string { return (string) $type; }
function parameter(ReflectionParameter $parameter): array {
    return [
        $parameter->getName(), type($parameter->getType()), $parameter->isPassedByReference(), $parameter->isVariadic(),
        $parameter->isDefaultValueAvailable() ? $parameter->getDefaultValue() : 'required',
    ];
}
function signature(ReflectionFunctionAbstract $function): array {
    return [array_map('parameter', $function->getParameters()), type($function->getReturnType())];
}
function functions(array $names): array {
    $found = [];
    foreach ($names as $name) {
        $found[strtolower($name)] = signature(new ReflectionFunction($name));
    }
    ksort($found);
    return $found;
}
function classes(array $names): array {
    $found = [];
    foreach (preg_grep('/^howdah/', $names) as $name) {
        foreach ((new ReflectionClass($name))->getMethods() as $method) {
            $found[$name][$method->getName()] = [Reflection::getModifierNames($method->getModifiers()), signature($method)];
        }
        ksort($found[$name]);
    }
    return $found;
}
function constants(array $all): array {
    return array_filter($all, fn (string $name) => preg_match('/^(FRANKENPHP|HOWDAH)_/', $name), ARRAY_FILTER_USE_KEY);
}
"""
REGISTERED = (
    "json_encode([functions(get_extension_funcs('howdah')), constants(get_defined_constants()), "
    "classes(get_declared_classes())])"
)
LOOP = "while (howdah\\handle_request(function (): void { echo " + REGISTERED + "; })) { }"


def described(*files: str) -> list:
    """The functions and constants that the stubs declare."""
    code = REFLECTION + "foreach (json_decode($argv[1]) as $file) { require $file; }"
    code += "echo json_encode([functions(get_defined_functions()['user']), constants(get_defined_constants()), "
    code += "classes(get_declared_classes())]);"
    paths = json.dumps([str(STUBS / file) for file in files])
    result = subprocess.run(["php", "-n", "-r", code, paths], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
    functions, constants, classes = json.loads(result.stdout)
    for helper in ("type", "parameter", "signature", "functions", "constants", "classes"):
        del functions[helper]
    return [functions, constants, classes]


def test_the_stubs_are_the_functions_of_worker_mode(start_worker):
    site = start_worker(boot=REFLECTION, loop=LOOP)
    registered = site.server.get("/").json()
    assert registered == described("both_modes.php", *ONLY_IN_WORKER_MODE)
    assert "howdah\\handle_request" in registered[0] and registered[1], "the comparison covers functions and constants"


def test_the_stubs_of_both_modes_are_the_functions_of_classic_mode(folder, serve):
    folder.php("index.php", REFLECTION + "echo " + REGISTERED + ";")
    # PHP encodes an empty array as a list.
    functions, constants, classes = serve().get("/").json()
    assert [functions, constants, classes] == described("both_modes.php")


def test_the_stubs_are_the_functions_and_the_class_of_async_mode(folder, run):
    loop = "while (howdah\\Async\\is_running()) { $read = [howdah\\Async\\stream()]; stream_select($read, $none, $none, null); "
    loop += "while ($request = howdah\\Async\\accept()) { $request->respond(200, [], " + REGISTERED + "); } }"
    folder.php("server.php", REFLECTION + loop)
    worker = {"script": "server.php", "concurrency": 2}
    server = run({"applications": {"app": {"type": "php", "root": str(folder.root), "worker": worker}}})
    registered = server.get("/").json()
    assert registered == described("both_modes.php", *ONLY_IN_ASYNC_MODE)
    assert len(registered[2]["howdah\\Async\\Request"]) > 10


def test_every_stub_is_compared():
    assert {path.name for path in STUBS.glob("*.php")} == {"both_modes.php", *ONLY_IN_WORKER_MODE, *ONLY_IN_ASYNC_MODE}
