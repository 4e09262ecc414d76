<?php

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\Config\Loader\LoaderInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    /**
     * In memory, as the folder of the code may be read-only. Each user and each version of the code has a folder of
     * its own: two users cannot both write to one, and two versions need two containers.
     */
    public function getCacheDir(): string
    {
        static $folder;
        return $folder ??= sprintf('%s/%s/%s', $this->ownFolder(), $this->codeVersion(), $this->environment);
    }

    public function getLogDir(): string
    {
        return dirname($this->getCacheDir()) . '/log';
    }

    protected function configureContainer(ContainerBuilder $container, LoaderInterface $loader): void
    {
        $loader->load($this->getProjectDir() . '/config/packages/*.yaml', 'glob');
        $loader->load($this->getProjectDir() . '/config/services.yaml');
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->import($this->getProjectDir() . '/config/routes.yaml');
    }

    /** Every user may write to /dev/shm, and PHP runs code from this folder: it must belong to this user. */
    private function ownFolder(): string
    {
        $user = posix_geteuid();
        $folder = "/dev/shm/howdah-symfony-$user";
        if (@fileowner($folder) !== $user && !@mkdir($folder, 0700)) {
            throw new \RuntimeException("$folder must belong to user $user; remove it.");
        }
        return $folder;
    }

    private function codeVersion(): string
    {
        $project = $this->getProjectDir();
        $version = PHP_VERSION . self::VERSION;
        foreach (['config/packages/framework', 'config/routes', 'config/services'] as $name) {
            $version .= "$project/$name" . filemtime("$project/$name.yaml");
        }
        return hash('xxh3', $version . filemtime(__FILE__) . filemtime(__DIR__ . '/ReportController.php'));
    }
}
