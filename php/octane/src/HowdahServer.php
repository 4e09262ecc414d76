<?php

declare(strict_types=1);

namespace Howdah\Octane;

use Laravel\Octane\Contracts\ServerProcessInspector;
use RuntimeException;
use Symfony\Component\Process\ExecutableFinder;
use Symfony\Component\Process\Process;

/**
 * The `howdah serve` of one application. howdah's own commands find it by the application's folder.
 */
final class HowdahServer implements ServerProcessInspector
{
    private const WORKER = __DIR__ . '/../bin/howdah-worker.php';
    /** Where howdah may be, besides the folders of PATH. */
    private const FOLDERS = ['/usr/local/bin', '/usr/bin'];

    /**
     * @param string $folder the application's folder
     * @param string $stateFile the JSON file in which Octane keeps the server's process id
     * @param string|null $executable the path of howdah; null searches PATH
     */
    public function __construct(
        private readonly string $folder,
        private readonly string $stateFile,
        private readonly ?string $executable = null,
    ) {
    }

    public function serverIsRunning(): bool
    {
        return $this->isHowdah($this->processId()) && $this->command('status')->run() === 0;
    }

    /** Replaces the workers; no request is lost. */
    public function reloadServer(): void
    {
        $restart = $this->command('restart', 'app');
        if ($restart->run() !== 0) {
            throw new RuntimeException(trim($restart->getErrorOutput()));
        }
    }

    /** Ends the server after the requests that run. */
    public function stopServer(): bool
    {
        $id = $this->processId();

        return $this->isHowdah($id) && posix_kill($id, SIGTERM);
    }

    /** Notes that this process becomes the server. */
    public function writeState(): void
    {
        $state = json_encode(['masterProcessId' => getmypid(), 'state' => ['server' => 'howdah']], JSON_THROW_ON_ERROR);
        if (file_put_contents($this->stateFile, $state) === false) {
            throw new RuntimeException("$this->stateFile cannot be written: octane:stop would not find the server");
        }
    }

    /**
     * The command line of the server.
     *
     * @param string $address such as 127.0.0.1:8000
     * @param int|null $workers null: howdah chooses, by the load
     * @param array<string, string> $environment more variables for PHP
     *
     * @return non-empty-list<string>
     */
    public function commandLine(string $address, ?int $workers, bool $watch, array $environment): array
    {
        $line = [$this->executable(), 'serve', $this->folder, '--listen', $address, '--worker', $this->workerScript()];
        $line[] = '--inherit-env';
        foreach ($environment as $name => $value) {
            array_push($line, '--env', "$name=$value");
        }
        if ($workers !== null) {
            array_push($line, '--processes', (string) $workers);
        }
        if ($watch) {
            array_push($line, '--reload', 'on-change');
        }

        return $line;
    }

    /** Its path below the application's folder. Links are kept, such as those of Composer's path repositories. */
    private function workerScript(): string
    {
        $vendor = getenv('COMPOSER_VENDOR_DIR') ?: "$this->folder/vendor";
        $script = "$vendor/howdah/octane/bin/howdah-worker.php";
        if (!str_starts_with($script, "$this->folder/") || !is_file($script)) {
            throw new RuntimeException("$script must exist below $this->folder: run composer install there");
        }
        if (realpath($script) !== realpath(self::WORKER)) {
            throw new RuntimeException("$script is not the one of this package: run composer install");
        }

        return substr($script, \strlen("$this->folder/"));
    }

    private function executable(): string
    {
        $found = $this->executable ?? (new ExecutableFinder())->find('howdah', null, self::FOLDERS);
        if ($found === null || !is_executable($found)) {
            $name = $found ?? 'howdah';
            throw new RuntimeException("$name is not an executable: install howdah, or set HOWDAH_BINARY");
        }

        return $found;
    }

    private function command(string ...$arguments): Process
    {
        return new Process([$this->executable(), ...$arguments, '--folder', $this->folder]);
    }

    private function processId(): int
    {
        $text = is_file($this->stateFile) ? file_get_contents($this->stateFile) : false;
        $state = \is_string($text) ? json_decode($text, true) : null;
        $id = \is_array($state) ? $state['masterProcessId'] ?? 0 : 0;

        return \is_int($id) ? $id : 0;
    }

    /** A process id in an old file may belong to another program. */
    private function isHowdah(int $id): bool
    {
        $name = $id > 1 ? @file_get_contents("/proc/$id/comm") : false;

        return \is_string($name) && str_starts_with($name, 'howdah');
    }
}
