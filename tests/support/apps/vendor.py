"""The vendor/ folder of a PHP application, as Composer would make it, of Debian's packages and of howdah's own in php/."""

import json
import shutil
from pathlib import Path
from typing import Sequence

from support.server import REPOSITORY

DEBIAN = Path("/usr/share/php")
# Symfony 6.4 asks Composer which packages are installed. Debian's are not Composer's.
INSTALLED_VERSIONS = """<?php
namespace Composer;
final class InstalledVersions
{
    public static function isInstalled(string $package, bool $includeDevRequirements = true): bool { return false; }
    public static function getRootPackage(): array { return ['name' => 'howdah/tests']; }
}
"""
RUNTIME_TEMPLATE = DEBIAN / "Symfony/Component/Runtime/Internal/autoload_runtime.template"


def install(application: Path, debian: Sequence[str] = (), packages: Sequence[str] = ()) -> None:
    """Makes vendor/autoload.php and vendor/autoload_runtime.php.

    `debian` are folders below /usr/share/php with an autoload.php; `packages` are folders of php/. App\\ is src/.
    """
    vendor = application / "vendor"
    prefixes = {"App\\": "../src/"}
    for name in packages:
        shutil.copytree(REPOSITORY / "php" / name, vendor / "howdah" / name)
        composer = json.loads((vendor / "howdah" / name / "composer.json").read_text())
        for prefix, folder in composer["autoload"]["psr-4"].items():
            prefixes[prefix] = f"howdah/{name}/{folder}"
    vendor.mkdir(exist_ok=True)
    (vendor / "InstalledVersions.php").write_text(INSTALLED_VERSIONS)
    lines = ["<?php", "require_once __DIR__ . '/InstalledVersions.php';"]
    lines += [f"require_once '{folder}/autoload.php';" for folder in debian]
    for prefix, folder in prefixes.items():
        quoted = prefix.replace("\\", "\\\\")
        lines.append(
            f"spl_autoload_register(function (string $class): void {{"
            f" $file = __DIR__ . '/{folder}' . strtr(substr($class, {len(prefix)}), '\\\\', '/') . '.php';"
            f" if (str_starts_with($class, '{quoted}') && is_file($file)) {{ require $file; }} }});"
        )
    (vendor / "autoload.php").write_text("\n".join(lines) + "\n")
    # Composer's plugin of symfony/runtime fills the template in the same way.
    runtime = RUNTIME_TEMPLATE.read_text()
    runtime = runtime.replace("%runtime_class%", r"'Symfony\\Component\\Runtime\\SymfonyRuntime'")
    runtime = runtime.replace("%runtime_options%", "['project_dir' => dirname(__DIR__)]")
    (vendor / "autoload_runtime.php").write_text(runtime)
