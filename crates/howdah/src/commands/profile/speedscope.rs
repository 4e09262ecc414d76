//! The samples of a profile as a file for <https://speedscope.app>.

use crate::commands::profile::samples::Samples;
use serde_json::json;

/// The JSON file. `rate` is the number of samples of each worker per second.
pub fn write(samples: &Samples, application: &str, rate: u32) -> String {
    let weight = 1.0 / f64::from(rate);
    let profiles = samples.workers.iter().map(|(worker, samples)| {
        json!({
            "type": "sampled",
            "name": format!("worker {worker}"),
            "unit": "seconds",
            "startValue": 0,
            "endValue": weight * samples.len() as f64,
            "samples": samples,
            "weights": vec![weight; samples.len()],
        })
    });
    let frames = samples.frames.iter().map(|frame| match frame.file.as_str() {
        "" => json!({ "name": frame.name }),
        file => json!({ "name": frame.label(), "file": file }),
    });
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("howdah ", env!("CARGO_PKG_VERSION")),
        "name": application,
        "shared": { "frames": frames.collect::<Vec<_>>() },
        "profiles": profiles.collect::<Vec<_>>(),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::samples::tests::SAMPLES;
    use serde_json::Value;

    #[test]
    fn each_worker_has_a_profile() {
        let document: Value = serde_json::from_str(&write(&Samples::read(SAMPLES), "shop", 10)).unwrap();
        assert_eq!(document.pointer("/profiles/0/samples").unwrap().as_array().unwrap().len(), 2);
        assert_eq!(document.pointer("/profiles/1/endValue").unwrap(), 0.1);
    }
}
