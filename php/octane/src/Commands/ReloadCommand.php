<?php

declare(strict_types=1);

namespace Howdah\Octane\Commands;

use Laravel\Octane\Commands\ReloadCommand as OctaneReloadCommand;
use RuntimeException;

/**
 * `octane:reload` for howdah, too.
 */
final class ReloadCommand extends OctaneReloadCommand
{
    use ChoosesServer;

    /** @return int|null */
    public function handle()
    {
        if (!$this->isForHowdah()) {
            return parent::handle();
        }
        if (!$this->howdah()->serverIsRunning()) {
            $this->error('Octane server is not running.');

            return self::FAILURE;
        }
        $this->info('Reloading workers...');
        try {
            $this->howdah()->reloadServer();
        } catch (RuntimeException $exception) {
            // The old workers go on.
            $this->error($exception->getMessage());

            return self::FAILURE;
        }

        return self::SUCCESS;
    }
}
