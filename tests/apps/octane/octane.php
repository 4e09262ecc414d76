<?php
/**
 * Stands for laravel/octane, which no package of Debian has: the classes that howdah/octane uses, with the signatures of
 * version 2. Its worker handles requests in one application; Octane's gives each request a clone.
 */

namespace Laravel\Octane\Contracts {
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Request;
    use Laravel\Octane\OctaneResponse;
    use Laravel\Octane\RequestContext;

    interface Client
    {
        public function marshalRequest(RequestContext $context): array;

        public function respond(RequestContext $context, OctaneResponse $octaneResponse): void;

        public function error(\Throwable $e, Application $app, Request $request, RequestContext $context): void;
    }

    interface StoppableClient extends Client
    {
        public function stop(): void;
    }

    interface Worker
    {
        public function boot(): void;

        public function handle(Request $request, RequestContext $context): void;

        public function terminate(): void;
    }

    interface ServerProcessInspector
    {
        public function serverIsRunning(): bool;

        public function reloadServer(): void;

        public function stopServer(): bool;
    }
}

namespace Laravel\Octane {
    use Illuminate\Contracts\Http\Kernel;
    use Illuminate\Foundation\Application;
    use Illuminate\Http\Request;
    use Illuminate\Support\ServiceProvider;
    use Laravel\Octane\Contracts\Client;
    use Laravel\Octane\Contracts\StoppableClient;
    use Symfony\Component\HttpFoundation\Response;

    final class RequestContext
    {
    }

    final class OctaneResponse
    {
        public function __construct(public Response $response, public ?string $outputBuffer = null)
        {
        }
    }

    final class Octane
    {
        public static function formatExceptionForClient(\Throwable $e, bool $debug = false): string
        {
            return $debug ? (string) $e : 'Internal server error.';
        }
    }

    final class ApplicationFactory
    {
        public function __construct(private string $basePath)
        {
        }

        public function createApplication(): Application
        {
            $app = require "$this->basePath/bootstrap/app.php";
            $app->instance('request', Request::create('http://localhost'));
            $app->make(Kernel::class)->bootstrap();

            return $app;
        }
    }

    final class Worker implements Contracts\Worker
    {
        private Application $app;

        public function __construct(private ApplicationFactory $factory, private Client $client)
        {
        }

        public function boot(): void
        {
            $this->app = $this->factory->createApplication();
            fwrite(STDERR, "octane: a worker was booted\n");
        }

        public function handle(Request $request, RequestContext $context): void
        {
            $kernel = $this->app->make(Kernel::class);
            try {
                ob_start();
                $response = $kernel->handle($request);
                if ($request->query->has('fail')) {
                    throw new \LogicException('failed outside of the kernel');
                }
                $this->client->respond($context, new OctaneResponse($response, ob_get_clean()));
                $kernel->terminate($request, $response);
            } catch (\Throwable $exception) {
                ob_get_level() && ob_end_clean();
                $this->client->error($exception, $this->app, $request, $context);
                if ($this->client instanceof StoppableClient) {
                    $this->client->stop();
                }
            }
        }

        public function terminate(): void
        {
            fwrite(STDERR, "octane: a worker was terminated\n");
        }
    }

    final class OctaneServiceProvider extends ServiceProvider
    {
        public function boot(): void
        {
            $this->commands([
                Commands\StartCommand::class,
                Commands\ReloadCommand::class,
                Commands\StopCommand::class,
                Commands\StatusCommand::class,
            ]);
        }
    }
}

namespace Laravel\Octane\Commands {
    use Illuminate\Console\Command;

    class StartCommand extends Command
    {
        public $signature = 'octane:start {--server=} {--host=127.0.0.1} {--port=} {--workers=auto} {--max-requests=500}
                             {--https} {--watch}';

        public function handle()
        {
            $this->error("Invalid server: {$this->option('server')}.");

            return 1;
        }
    }

    class ReloadCommand extends Command
    {
        public $signature = 'octane:reload {--server=}';

        public function handle()
        {
            $this->info('reloaded another server');
        }
    }

    class StopCommand extends Command
    {
        public $signature = 'octane:stop {--server=}';

        public function handle()
        {
        }
    }

    class StatusCommand extends Command
    {
        public $signature = 'octane:status {--server=}';

        public function handle()
        {
        }
    }
}
