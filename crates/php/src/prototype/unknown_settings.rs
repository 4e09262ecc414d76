//! Warnings about configured settings that PHP does not know: a wrong name, or an extension that is not loaded. PHP itself
//! accepts any name.

/// A warning for each of these settings that is not in `known`.
pub fn warnings<'a>(
    application: &str,
    configured: impl Iterator<Item = (&'static str, &'a String)>,
    known: &[String],
) -> Vec<String> {
    let unknown = configured.filter(|(_, name)| !known.contains(name));
    let warning = |(option, name): (&str, &String)| {
        let near = match nearest(name, known) {
            Some(near) => format!("; did you mean {near:?}?"),
            None => "; is its extension loaded?".to_owned(),
        };
        format!("applications/{application}/options/{option}: PHP has no setting {name:?}{near}")
    };
    unknown.map(warning).collect()
}

/// The known name with the fewest differences, if it is similar.
fn nearest<'k>(name: &str, known: &'k [String]) -> Option<&'k String> {
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let distances = known.iter().map(|candidate| (distance(&name.to_lowercase(), candidate), candidate));
    distances.filter(|(distance, _)| *distance <= allowed).min().map(|(_, candidate)| candidate)
}

/// The number of characters to insert, remove or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_reported_with_the_nearest_one() {
        let known = ["memory_limit", "display_errors", "log_errors"].map(str::to_owned);
        let warning = |name: &str| warnings("shop", [("admin", &name.to_owned())].into_iter(), &known);
        assert_eq!(
            warning("memory_limt"),
            ["applications/shop/options/admin: PHP has no setting \"memory_limt\"; did you mean \"memory_limit\"?"]
        );
        assert!(warning("xdebug.mode")[0].ends_with("; is its extension loaded?"));
        assert!(warning("log_errors").is_empty());
    }

    #[test]
    fn the_distance_counts_characters() {
        for (one, other, expected) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(one, other), expected);
            assert_eq!(distance(other, one), expected);
        }
    }
}
