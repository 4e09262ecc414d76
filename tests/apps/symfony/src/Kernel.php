<?php

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    /** In this process. */
    public static int $boots = 0;

    public function boot(): void
    {
        self::$boots += $this->booted ? 0 : 1;
        parent::boot();
    }

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'nothing is signed here',
            'http_method_override' => false,
            'router' => ['utf8' => true],
        ]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->set(Pages::class)->tag('controller.service_arguments')->public();
        $services->set(CallsSinceReset::class);
        $services->set(CallsSinceBoot::class);
        $services->set(AfterResponse::class);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (['state', 'exit', 'exception', 'broken_body', 'stream', 'slow_end', 'upload', 'cookies'] as $name) {
            $routes->add($name, "/$name")->controller([Pages::class, $name]);
        }
    }
}
