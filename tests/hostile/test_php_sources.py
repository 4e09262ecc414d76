"""Sources of PHP under the names that editors, version control and operators give to their copies."""

import pytest

SECRET = "database password"
NAMES = [
    "config.php~",
    "config.php.bak",
    "config.php.BAK",
    "config.php.orig",
    "config.php.swp",
    "config.php.save",
    "config.php_old",
    "config.php-2024-01-01",
    "config.php.1",
    "config.php.zip",
    "config.php,v",
    "#config.php#",
    "config.php (copy)",
    "config.inc",
    "config.inc.php.old",
    "view.phtml~",
    "view.pht",
    "old.phar.bak",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_a_source_is_not_sent(site, server, name):
    site.write(name, f"<?php $password = '{SECRET}';")
    escaped = "".join(f"%{ord(letter):02x}" if letter in "#~, ()" else letter for letter in name)
    for target in (f"/{escaped}", f"/{escaped}?x", f"/{escaped}/", f"//{escaped}", "/" + escaped.replace(".", "%2e")):
        response = server.get(target)
        assert (response.status, SECRET in response.text) == (404, False), target


def test_pages_and_scripts_with_php_in_their_names_are_sent(site, server):
    for name in ("mirror.php.html", "jquery.inc.js", "about.php.txt"):
        site.write(name, "published")
        assert server.get(f"/{name}").text == "published", name
