<?php

declare(strict_types=1);

namespace Howdah\Octane;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Support\ServiceProvider;
use Laravel\Octane\Commands as Octane;

/**
 * Adds the server `howdah` to Octane's commands.
 */
final class HowdahServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        // Octane registers its commands by their classes, which Laravel makes with the container.
        $this->app->bind(Octane\StartCommand::class, Commands\StartCommand::class);
        $this->app->bind(Octane\ReloadCommand::class, Commands\ReloadCommand::class);
        $this->app->bind(Octane\StopCommand::class, Commands\StopCommand::class);
        $this->app->bind(Octane\StatusCommand::class, Commands\StatusCommand::class);

        $this->app->bind(HowdahServer::class, static function (Application $app): HowdahServer {
            $config = $app->make('config');

            return new HowdahServer(
                $app->basePath(),
                $config->get('octane.state_file') ?? $app->storagePath() . '/logs/octane-server-state.json',
                $config->get('octane.howdah.binary') ?? (getenv('HOWDAH_BINARY') ?: null),
            );
        });
    }
}
