<?php

declare(strict_types=1);

namespace Howdah\Octane\Commands;

use Dotenv\Dotenv;
use Howdah\Octane\HowdahServer;
use Laravel\Octane\Commands\StartCommand as OctaneStartCommand;
use RuntimeException;

/**
 * `octane:start` for howdah, too: this process becomes `howdah serve`.
 */
final class StartCommand extends OctaneStartCommand
{
    use ChoosesServer;

    /** Options of other servers, and what to do in their place. */
    private const REFUSED = [
        'https' => 'write a configuration with "tls" for howdah run, which howdah serve --print-config begins',
        'caddyfile' => 'howdah has no Caddyfile',
        'rr-config' => 'howdah has no .rr.yaml',
    ];

    /** @return int */
    public function handle()
    {
        if (!$this->isForHowdah()) {
            return parent::handle();
        }
        try {
            $this->becomeServer($this->howdah());
        } catch (RuntimeException $exception) {
            $this->error($exception->getMessage());
        }

        return self::FAILURE;
    }

    private function becomeServer(HowdahServer $server): void
    {
        foreach (self::REFUSED as $option => $remedy) {
            if ($this->hasOption($option) && $this->option($option)) {
                throw new RuntimeException("--$option is not possible with howdah: $remedy.");
            }
        }
        if (!\function_exists('pcntl_exec')) {
            throw new RuntimeException("PHP's extension pcntl is missing: octane:start needs it to become howdah.");
        }
        if ($server->serverIsRunning()) {
            throw new RuntimeException('howdah is already running.');
        }
        $line = $server->commandLine(
            $this->host() . ':' . $this->port(),
            $this->workers(),
            (bool) $this->option('watch'),
            [
                'APP_BASE_PATH' => $this->laravel->basePath(),
                'APP_ENV' => $this->laravel->environment(),
                'LARAVEL_OCTANE' => '1',
                'MAX_REQUESTS' => (string) $this->option('max-requests'),
                'REQUEST_MAX_EXECUTION_TIME' => (string) $this->config('octane.max_execution_time'),
            ],
        );
        $server->writeState();
        pcntl_exec($line[0], \array_slice($line, 1), $this->environment());
        throw new RuntimeException("$line[0] cannot be run: " . pcntl_strerror(pcntl_get_last_error()));
    }

    /**
     * The environment of this process without what Laravel has read from .env: workers read that file when they boot,
     * so that a reload sees its changes. A variable with another value was set outside, and takes precedence.
     *
     * @return array<string, string>
     */
    private function environment(): array
    {
        $file = $this->laravel->environmentFilePath();
        $read = is_file($file) ? Dotenv::parse((string) file_get_contents($file)) : [];

        return array_diff_assoc(getenv(), array_map(strval(...), $read));
    }

    private function host(): string
    {
        $host = $this->option('host') ?? $this->config('octane.host') ?? '127.0.0.1';

        return str_contains($host, ':') ? "[$host]" : $host;
    }

    private function port(): string
    {
        return (string) ($this->option('port') ?? $this->config('octane.port') ?? (getenv('OCTANE_PORT') ?: '8000'));
    }

    private function workers(): ?int
    {
        $workers = $this->option('workers');
        if ($workers === null || $workers === 'auto') {
            return null;
        }
        if (!ctype_digit((string) $workers) || (int) $workers < 1) {
            throw new RuntimeException("--workers=$workers: write a number from 1, or auto.");
        }

        return (int) $workers;
    }

    private function config(string $key): mixed
    {
        return $this->laravel->make('config')->get($key);
    }
}
