<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Hello</title>
<link rel="stylesheet" href="style.css">
<p>Hello from PHP <?= PHP_VERSION ?> (<?= PHP_SAPI ?>), served by <?= htmlspecialchars($_SERVER['SERVER_SOFTWARE']) ?>.
