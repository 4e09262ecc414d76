//! The memory that a route leaves until the next request only: many frameworks keep the last request. It is no leak, but if
//! its size differs from route to route, the memory grows with each request of one route, and shrinks with each one of another.
//!
//! The change with a request is the leak of its route, and what this route leaves, minus what the route before it has left.
//! Medians estimate the last two, in turns: a list that grows by doubling does not disturb them. If routes always follow
//! each other in the same order, they cannot be separated: the estimate may give the leak of one to others. Therefore it counts only
//! if the changes of each route differ less with it, and remain as they are otherwise. A route with few requests has no estimate.
//!
//! No route frees memory with each request but what others have left: if the usual change of a route is negative, that memory counts as
//! left by the route that is usually before it, unless the changes of each route differ more with it. In a constant order, a leak of a route
//! that frees memory, too, is shown for the route before.

use super::growth::LEAST_REQUESTS;
use std::collections::BTreeMap;

/// A request, and the change with it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The number of its route.
    pub route: usize,
    /// The number of the route before it.
    pub previous: usize,
    /// The change of a number.
    pub change: f64,
}

/// The estimates are improved this number of times.
const TURNS: usize = 8;
/// The most routes between the one that leaves memory and the one that frees it.
const MAX_ROUTES_BETWEEN: usize = 50;
/// The changes must differ by this part of before at most.
const WORTH_IT: f64 = 0.5;

/// The part that each route leaves until the next request, by the number of the route. Only the differences have a meaning.
pub fn carried(steps: &[Step], routes: usize) -> Vec<f64> {
    let mut left = vec![0.0; routes];
    let before = spread(steps, &left);
    for _ in 0..TURNS {
        let with = medians(steps.iter().map(|step| (step.route, step.change + left[step.previous])), routes, 1);
        left =
            medians(steps.iter().map(|step| (step.previous, with[step.route] - step.change)), routes, LEAST_REQUESTS);
    }
    if spread(steps, &left) >= WORTH_IT * before {
        left.fill(0.0);
    }
    let freed = freed_by_successors(steps, &left);
    if spread(steps, &freed) <= spread(steps, &left) { freed } else { left }
}

/// The parts that stay until the next request, with what the next routes free.
fn freed_by_successors(steps: &[Step], left: &[f64]) -> Vec<f64> {
    let mut left = left.to_vec();
    let predecessors = usual_predecessors(steps, left.len());
    // If the route before has not kept it, either, it goes to the one before that.
    for _ in 0..MAX_ROUTES_BETWEEN {
        let usual = medians(changes(steps, &left), left.len(), LEAST_REQUESTS);
        // A route that follows itself has no part that others have left.
        let freed = usual.into_iter().zip(&predecessors).enumerate().filter(|(route, (_, before))| route != *before);
        let freed: Vec<_> = freed.filter(|(_, (change, _))| *change < 0.0).map(|(_, freed)| freed).collect();
        if freed.is_empty() {
            break;
        }
        freed.into_iter().for_each(|(change, before)| left[*before] -= change);
    }
    left
}

/// The route that is the most often before each route.
fn usual_predecessors(steps: &[Step], routes: usize) -> Vec<usize> {
    let mut counts = vec![BTreeMap::new(); routes];
    for step in steps {
        *counts[step.route].entry(step.previous).or_insert(0) += 1;
    }
    let most = |counts: BTreeMap<usize, usize>| counts.into_iter().max_by_key(|(_, count)| *count);
    counts.into_iter().map(|counts| most(counts).map_or(0, |(route, _)| route)).collect()
}

/// How much the changes differ from the median of their route, with these parts that stay until the next request.
fn spread(steps: &[Step], left: &[f64]) -> f64 {
    let usual = medians(changes(steps, left), left.len(), 1);
    changes(steps, left).map(|(route, change)| (change - usual[route]).abs()).sum()
}

/// The change with each request, and its route, with these parts that stay until the next request.
fn changes(steps: &[Step], left: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    steps.iter().map(|step| (step.route, step.change - left[step.route] + left[step.previous]))
}

/// The median of the values of each route; 0 for one with fewer than `least` values.
fn medians(values: impl Iterator<Item = (usize, f64)>, routes: usize, least: usize) -> Vec<f64> {
    let mut of_route = vec![Vec::new(); routes];
    for (route, value) in values {
        of_route[route].push(value);
    }
    let median = |mut values: Vec<f64>| {
        let middle = values.len() / 2;
        if values.len() < least { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
    };
    of_route.into_iter().map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of routes in an irregular order. The memory after each one has these bytes of the last request, besides the
    /// leaks of all requests.
    fn steps(count: u32, kept: [f64; 3], leak: impl Fn(usize, u32) -> f64) -> Vec<Step> {
        let (mut state, mut previous, mut steps) = (1u32, 0, Vec::new());
        for number in 0..count {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let route = (state >> 16) as usize % 3;
            steps.push(Step { route, previous, change: kept[route] - kept[previous] + leak(route, number) });
            previous = route;
        }
        steps
    }

    fn leaks(steps: &[Step]) -> Vec<f64> {
        let left = carried(steps, 3);
        let mean = |route| {
            let of = steps.iter().filter(|step| step.route == route);
            let changes: Vec<_> = of.map(|step| step.change - left[step.route] + left[step.previous]).collect();
            changes.iter().sum::<f64>() / changes.len() as f64
        };
        (0..3).map(mean).collect()
    }

    #[test]
    fn what_stays_until_the_next_request_is_no_leak() {
        assert_eq!(leaks(&steps(300, [20_000.0, 10.0, 500.0], |_, _| 0.0)), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_leak_is_found_beside_it() {
        let leak = |route, _| if route == 1 { 700.0 } else { 0.0 };
        assert_eq!(leaks(&steps(300, [20_000.0, 10.0, 500.0], leak)), [0.0, 700.0, 0.0]);
    }

    #[test]
    fn what_the_next_routes_free_is_no_leak_in_a_constant_order() {
        let found = |kept: [f64; 3], leak: [f64; 3]| {
            let step = |number: usize| {
                let (route, previous) = (number % 3, (number + 2) % 3);
                Step { route, previous, change: kept[route] - kept[previous] + leak[route] }
            };
            leaks(&(0..300).map(step).collect::<Vec<_>>())
        };
        assert_eq!(found([20_000.0, 10.0, 10.0], [0.0; 3]), [0.0; 3]);
        assert_eq!(found([20_000.0, 500.0, 10.0], [0.0; 3]), [0.0; 3], "in two steps");
        assert_eq!(found([0.0, 0.0, 2104.0], [0.0, 700.0, 0.0]), [0.0, 700.0, 0.0]);
        assert_eq!(found([20_000.0, 0.0, 0.0], [0.0, 700.0, 0.0]), [700.0, 0.0, 0.0], "for the route before");
    }

    #[test]
    fn a_route_that_frees_memory_and_follows_itself_hides_no_other() {
        // 0, 1, 2, 2, 2 and so on; what route 0 leaves, route 1 frees.
        let step = |number: usize| {
            let (route, previous) = ([0, 1, 2, 2, 2][number % 5], [2, 0, 1, 2, 2][number % 5]);
            Step { route, previous, change: [5000.0, -5000.0, -100.0][route] }
        };
        assert_eq!(leaks(&(0..500).map(step).collect::<Vec<_>>()), [0.0, 0.0, -100.0]);
    }

    #[test]
    fn a_leak_stays_with_its_route_if_the_order_is_nearly_constant() {
        for seed in 0..100u32 {
            let (mut state, mut previous, mut steps) = (seed, 0, Vec::new());
            let mut random = |most: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % most
            };
            // Each change is a little off, so that the medians of a turn are, too.
            for number in 0..300 {
                let route = if random(20) == 0 { random(5) as usize } else { number % 5 };
                let change = f64::from(random(3)) * 100.0 + if route == 0 { 2137.0 } else { 0.0 };
                steps.push(Step { route, previous, change });
                previous = route;
            }
            assert_eq!(carried(&steps, 5), [0.0; 5], "{seed}");
        }
    }

    #[test]
    fn a_list_that_doubles_grows_its_own_route_only() {
        let leak = |route, number: u32| if route == 2 && number.is_multiple_of(7) { 65_536.0 } else { 0.0 };
        let found = leaks(&steps(300, [0.0; 3], leak));
        assert!(found[0] == 0.0 && found[1] == 0.0 && found[2] > 5_000.0, "{found:?}");
    }
}
