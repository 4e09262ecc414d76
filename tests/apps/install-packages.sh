#!/bin/sh
# Installs the packages for the tests of this folder, on Debian 12 or 13, as root. Does nothing if all are installed.
# Starts no service.
set -eu

# php-fpm and nginx are named only so that the applications' "php" and "httpd" do not bring Apache.
PACKAGES="
    nginx php-fpm php-cli php-curl php-gd php-intl php-mbstring php-mysql php-xml php-zip
    mariadb-server mariadb-client
    wordpress wordpress-theme-twentytwentythree
    dokuwiki
    phpmyadmin
    mediawiki
    php-slim
    php-laravel-framework
    php-symfony-framework-bundle php-symfony-yaml php-symfony-runtime
    php-nyholm-psr7
    python3-pytest python3-pytest-timeout python3-pytest-xdist
"

# Debian 13 has neither.
. /etc/os-release
php=8.4
if [ "$VERSION_ID" = 12 ]; then
    php=8.2
    PACKAGES="$PACKAGES php-symfony-polyfill-php80 php-amphp-amp"
fi

look_for_missing() {
    missing=
    for package in $PACKAGES; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
}

look_for_missing
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "install-packages.sh: these packages are missing; run it as root:$missing" >&2
    exit 1
fi

# Of several test runs at the same time, one installs and the others wait.
exec 9>/run/lock/howdah-install-packages
flock 9
look_for_missing
[ -n "$missing" ] || exit 0

# Maintainer scripts ask policy-rc.d before they start a service; 101 is "forbidden".
policy=/usr/sbin/policy-rc.d
if [ -e "$policy" ]; then
    mv "$policy" "$policy.howdah-saved"
    trap 'mv -f "$policy.howdah-saved" "$policy"' EXIT
else
    trap 'rm -f "$policy"' EXIT
fi
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
LOCK="-o DPkg::Lock::Timeout=600"
apt-get $LOCK update -qq
apt-get $LOCK install -qq -y --no-install-recommends debconf >/dev/null

# The applications get no database and no web server here: each test starts both.
debconf-set-selections <<'ANSWERS'
phpmyadmin phpmyadmin/dbconfig-install boolean false
phpmyadmin phpmyadmin/reconfigure-webserver multiselect
dokuwiki dokuwiki/system/configure-webserver multiselect
dokuwiki dokuwiki/wiki/acl boolean true
dokuwiki dokuwiki/wiki/superuser string admin
dokuwiki dokuwiki/wiki/password password wiki-secret
dokuwiki dokuwiki/wiki/confirm password wiki-secret
dokuwiki dokuwiki/wiki/policy select open (anyone can read, write, upload)
ANSWERS

# The trailing "-" means: do not install. It would remove a package, too; the tests of the lab need two of these.
unwanted=
for package in apache2 apache2-bin libapache2-mod-php libapache2-mod-php$php; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || unwanted="$unwanted $package-"
done
apt-get $LOCK install -qq -y --no-install-recommends $missing $unwanted
