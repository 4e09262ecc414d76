<?php

declare(strict_types=1);

namespace Howdah\Octane\Commands;

use Laravel\Octane\Commands\StopCommand as OctaneStopCommand;

/**
 * `octane:stop` for howdah, too.
 */
final class StopCommand extends OctaneStopCommand
{
    use ChoosesServer;

    /** @return int|null */
    public function handle()
    {
        if (!$this->isForHowdah()) {
            return parent::handle();
        }
        if (!$this->howdah()->stopServer()) {
            $this->error('Octane server is not running.');

            return self::FAILURE;
        }
        $this->info('Stopping server...');

        return self::SUCCESS;
    }
}
