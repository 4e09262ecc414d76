<?php

declare(strict_types=1);

namespace Howdah\Octane\Commands;

use Howdah\Octane\HowdahServer;

/**
 * Whether a command of Octane is for howdah, and not for another server.
 */
trait ChoosesServer
{
    private function isForHowdah(): bool
    {
        return ($this->option('server') ?: $this->laravel->make('config')->get('octane.server')) === 'howdah';
    }

    private function howdah(): HowdahServer
    {
        return $this->laravel->make(HowdahServer::class);
    }
}
