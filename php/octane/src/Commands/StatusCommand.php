<?php

declare(strict_types=1);

namespace Howdah\Octane\Commands;

use Laravel\Octane\Commands\StatusCommand as OctaneStatusCommand;

/**
 * `octane:status` for howdah, too.
 */
final class StatusCommand extends OctaneStatusCommand
{
    use ChoosesServer;

    /** @return int|bool */
    public function handle()
    {
        if (!$this->isForHowdah()) {
            return parent::handle();
        }
        $isRunning = $this->howdah()->serverIsRunning();
        $this->info($isRunning ? 'Octane server is running.' : 'Octane server is not running.');

        return $isRunning ? self::SUCCESS : self::FAILURE;
    }
}
