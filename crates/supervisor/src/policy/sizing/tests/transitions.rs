//! Clients turn from one page to another: how soon the policy has the right number of workers for it.

use super::pages::*;
use super::simulated::automatic;
use howdah_simulator::policy::{Fixed, WaitUpTo};
use howdah_simulator::run;
use howdah_simulator::scenario::{Page, Scenario};
use std::fmt;
use std::time::Duration;

/// When the clients turn to the other page.
const SWITCH: Duration = seconds(4);
const END: Duration = seconds(8);
/// The constant numbers of workers.
const NUMBERS: [usize; 7] = [2, 3, 4, 32, 64, 128, 512];

/// Clients in a closed loop: how many, and their pages.
type Load<'p> = (usize, &'p [Page]);

/// The best rate of a constant number of workers for these clients.
fn best(load: Load<'_>) -> f64 {
    let (from, until) = (seconds(1), seconds(2));
    let scenario = Scenario::new(until, vec![clients(load.0, load.1)]);
    let numbers = NUMBERS.into_iter().filter(|number| *number < 2 * load.0);
    let rates =
        numbers.map(|number| run(&scenario, &mut Fixed(number), &mut WaitUpTo(seconds(10))).ok_per_second(from, until));
    rates.max_by(f64::total_cmp).unwrap()
}

/// Clients that turn from one page to another.
struct Transition {
    name: String,
    /// For how long the best number would have had to stand still to finish as few requests as the policy afterwards.
    lost: Duration,
    /// The requests that it finishes from two seconds afterwards on, compared with the best number.
    share: f64,
    /// The workers two seconds afterwards.
    workers: usize,
}

impl Transition {
    fn play(name: &str, first: Load<'_>, second: Load<'_>) -> Transition {
        let groups = [(first, Duration::ZERO, SWITCH), (second, SWITCH, Duration::MAX)];
        let groups = groups.map(|((count, pages), from, until)| clients(count, pages).between(from, until));
        let outcome = automatic(&Scenario::new(END, groups.to_vec()));
        let best = best(second);
        let share = |from| outcome.ok_per_second(from, END) / best;
        let transition = Transition {
            name: format!("{name}, {} and then {} connections", first.0, second.0),
            lost: (END - SWITCH).mul_f64((1.0 - share(SWITCH)).max(0.0)),
            share: share(SWITCH + seconds(2)),
            workers: outcome.workers_at(SWITCH + seconds(2)),
        };
        println!("{transition}");
        transition
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transition { name, lost, share, workers } = self;
        write!(f, "{name}: lost {lost:.2?}, then {share:.3} with {workers} workers")
    }
}

/// Plays all pairs of pages with all pairs of numbers of clients, and lists the ones that do not pass.
fn expect(pages: &[(&str, &[Page], &[Page])], connections: &[(usize, usize)], passes: impl Fn(&Transition) -> bool) {
    let all = pages.iter().flat_map(|(name, first, second)| {
        connections.iter().map(|(before, after)| Transition::play(name, (*before, first), (*after, second)))
    });
    let lost: Vec<_> = all.filter(|transition| !passes(transition)).map(|transition| transition.to_string()).collect();
    assert!(lost.is_empty(), "\n{}", lost.join("\n"));
}

const CONNECTIONS: [(usize, usize); 4] = [(20, 100), (100, 100), (100, 500), (500, 500)];
const TEN_QUERIES: Page = Page::waits(ms(1), ms(10)).in_waits(10);

#[test]
fn workers_for_a_page_that_waits_start_at_once_after_one_that_computes() {
    let pages: [(&str, &[Page], &[Page]); 7] = [
        ("hello to sleep 50 ms", &[HELLO], &[SLEEP_50]),
        ("hello to sleep 50 ms, random", &[HELLO], &[SLEEP_50.random()]),
        ("hello to sleep 5 ms", &[HELLO], &[SLEEP_5]),
        ("hello to half", &[HELLO], &[HELLO, SLEEP_50]),
        ("hello to ten queries", &[HELLO], &[TEN_QUERIES]),
        ("json to sleep 50 ms", &[JSON], &[SLEEP_50]),
        ("phpinfo to sleep 50 ms", &[PHPINFO], &[SLEEP_50]),
    ];
    expect(&pages, &CONNECTIONS, |it| it.lost < ms(450) && it.share > 0.95);
    // The requests for the first page that are in the queue come first.
    let pages: [(&str, &[Page], &[Page]); 3] = [
        ("loop to sleep 50 ms", &[LOOP], &[SLEEP_50]),
        ("loop to half", &[LOOP], &[LOOP, SLEEP_50]),
        ("10 ms to sleep 50 ms", &[Page::computes(ms(10))], &[SLEEP_50]),
    ];
    expect(&pages, &[(20, 100), (20, 500), (100, 100)], |it| it.lost < ms(600) && it.share > 0.95);
}

#[test]
fn workers_for_a_longer_wait_start_within_a_second_or_two() {
    let pages: [(&str, &[Page], &[Page]); 2] = [
        ("sleep 5 ms to sleep 50 ms", &[SLEEP_5], &[SLEEP_50]),
        ("half to sleep 50 ms", &[HELLO, SLEEP_50], &[SLEEP_50]),
    ];
    expect(&pages, &CONNECTIONS, |it| it.lost < ms(1500) && it.share > 0.98);
}

#[test]
fn surplus_workers_exit_within_two_seconds_after_a_page_that_waits() {
    let pages: [(&str, &[Page], &[Page]); 4] = [
        ("sleep 50 ms to hello", &[SLEEP_50], &[HELLO]),
        ("sleep 50 ms to json", &[SLEEP_50], &[JSON]),
        ("sleep 5 ms to hello", &[SLEEP_5], &[HELLO]),
        ("half to hello", &[HELLO, SLEEP_50], &[HELLO]),
    ];
    expect(&pages, &[(100, 20), (100, 100), (500, 500)], |it| it.workers <= 4);
    // Two thirds of a second between two measurements of hundreds of workers.
    expect(&pages, &[(500, 100)], |it| it.lost < ms(500) && it.share > 0.9);
    let pages: [(&str, &[Page], &[Page]); 3] = [
        ("sleep 50 ms to loop", &[SLEEP_50], &[LOOP]),
        ("sleep 50 ms to half", &[SLEEP_50], &[HELLO, SLEEP_50]),
        ("sleep 50 ms to sleep 5 ms", &[SLEEP_50], &[SLEEP_5]),
    ];
    expect(&pages, &[(100, 20), (100, 100), (500, 100)], |it| it.lost < ms(100) && it.share > 0.98);
}
