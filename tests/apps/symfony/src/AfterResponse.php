<?php

namespace App;

use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
use Symfony\Component\HttpKernel\KernelEvents;

/** Work after the response: it waits for the test's file. */
class AfterResponse implements EventSubscriberInterface
{
    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::TERMINATE => 'work'];
    }

    public function work(TerminateEvent $event): void
    {
        if ($file = $event->getRequest()->query->get('ends_after')) {
            Pages::await($file);
            touch("$file.done");
        }
    }
}
