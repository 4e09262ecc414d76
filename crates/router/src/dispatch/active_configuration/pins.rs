//! Pins shares to releases, so that the static files of a running application come from the same release as its scripts:
//! if a share lies at or below a symbolic link that its generation resolved at its start, its files are those below the
//! link's target at that time.
//!
//! This applies only if the link is in the share's base, the part of its path that is equal for all requests. Links
//! below the base are resolved for each request, under the share's own policy for links. If two applications have the
//! same link with different targets, the younger generation decides.

use howdah_protocol::messages::generation_paths::GenerationPaths;
use std::collections::HashMap;
use std::path::Path;

/// The targets of links, for shares.
#[derive(Debug, Default)]
pub struct Pins {
    leads_to: HashMap<String, String>,
}

// === impl Pins ===

impl Pins {
    /// The pins of these generations, each with its number.
    pub fn of<'p>(generations: impl Iterator<Item = (u64, &'p GenerationPaths)>) -> Pins {
        let mut generations: Vec<_> = generations.collect();
        generations.sort_by_key(|(id, _)| *id);
        let pins = generations.iter().flat_map(|(_, paths)| &paths.pins);
        // Shares are text. A path that is not text is refused when its generation is planned.
        let text = |path: &Path| path.to_str().map(str::to_owned);
        Pins { leads_to: pins.filter_map(|pin| Some((text(&pin.link)?, text(&pin.leads_to)?))).collect() }
    }

    /// The pinned base and path of a file, if the base contains such a link. The path begins with the base.
    pub fn apply(&self, base: &str, path: &str) -> Option<(String, String)> {
        if self.leads_to.is_empty() {
            return None;
        }
        // The longest link first: it may lie behind another one.
        let (link, leads_to) = Path::new(base).ancestors().find_map(|folder| {
            let folder = folder.to_str()?;
            Some((folder, self.leads_to.get(folder)?))
        })?;
        // A path that is written with doubled slashes or dots does not match, and stays unchanged.
        let below = |whole: &str| {
            let rest = whole.strip_prefix(link)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{leads_to}{rest}"))
        };
        Some((below(base)?, below(path)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::generation_paths::PinnedLink;

    fn paths(pins: &[(&str, &str)]) -> GenerationPaths {
        let pins = pins.iter().map(|(link, leads_to)| PinnedLink { link: link.into(), leads_to: leads_to.into() });
        GenerationPaths { pins: pins.collect(), ..GenerationPaths::default() }
    }

    #[test]
    fn a_base_at_or_below_a_link_is_pinned() {
        let shop = paths(&[("/srv/shop/current", "/srv/shop/releases/1"), ("/srv/shop/current/x", "/mnt/x")]);
        let pins = Pins::of([(1, &shop)].into_iter());
        let cases = [
            (
                "/srv/shop/current",
                "/srv/shop/current/a.css",
                Some(("/srv/shop/releases/1", "/srv/shop/releases/1/a.css")),
            ),
            (
                "/srv/shop/current/public/",
                "/srv/shop/current/public/a",
                Some(("/srv/shop/releases/1/public/", "/srv/shop/releases/1/public/a")),
            ),
            ("/srv/shop/current/x", "/srv/shop/current/x/a", Some(("/mnt/x", "/mnt/x/a"))),
            (
                "/srv/shop/current/xy",
                "/srv/shop/current/xy/a",
                Some(("/srv/shop/releases/1/xy", "/srv/shop/releases/1/xy/a")),
            ),
            ("/srv/shop/currently", "/srv/shop/currently/a", None),
            ("/srv/shop/", "/srv/shop/current/a", None),
            ("/srv//shop/current", "/srv//shop/current/a", None),
        ];
        for (base, path, expected) in cases {
            let found = pins.apply(base, path);
            assert_eq!(found.as_ref().map(|(base, path)| (&**base, &**path)), expected, "{base} {path}");
        }
        assert_eq!(Pins::default().apply("/srv", "/srv/a"), None);
    }

    #[test]
    fn the_younger_of_two_generations_with_one_link_decides() {
        let (old, new) = (paths(&[("/srv/current", "/srv/1")]), paths(&[("/srv/current", "/srv/2")]));
        let pins = Pins::of([(7, &new), (3, &old)].into_iter());
        assert_eq!(pins.apply("/srv/current", "/srv/current/a").map(|(_, path)| path), Some("/srv/2/a".to_owned()));
    }
}
