//! Pages of simulations, and times.

use howdah_simulator::scenario::{Clients, Page};
use std::time::Duration;

pub const HELLO: Page = Page::computes(us(20));
pub const JSON: Page = Page::computes(us(60));
pub const PHPINFO: Page = Page::computes(us(400));
pub const LOOP: Page = Page::computes(ms(2));
pub const SLEEP_5: Page = Page::waits(us(60), ms(5));
pub const SLEEP_50: Page = Page::waits(us(60), ms(50));

pub const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Clients in a closed loop that request one or several pages, each as often as the others.
pub fn clients(count: usize, pages: &[Page]) -> Clients {
    Clients::closed(count, pages[0]).with_pages(pages.iter().map(|page| (1, *page)).collect())
}
