<?php

// The pages of public/ in howdah's async mode.
require __DIR__ . '/pages.php';

$stream = howdah\Async\stream();
while (howdah\Async\is_running()) {
    $read = [$stream];
    $none = null;
    stream_select($read, $none, $none, 60);
    while ($request = howdah\Async\accept()) {
        $request->respond(200, ['Content-Type' => 'application/json'], page($request->path()));
    }
}
