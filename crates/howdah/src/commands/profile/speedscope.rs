//! The samples of a profile as a file for <https://speedscope.app>.

use crate::commands::profile::samples::{OTHER_WORKERS, Samples};
use serde::Serialize;
use serde_json::{Value, json};

/// The file. Serialized as it is: as values of `serde_json`, the samples would take several times their memory.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    exporter: &'a str,
    name: &'a str,
    profiles: Vec<Profile<'a>>,
    shared: Value,
}

/// The samples of a worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    /// In seconds.
    end_value: f64,
    name: String,
    samples: &'a [Vec<usize>],
    /// In seconds.
    start_value: u32,
    r#type: &'a str,
    unit: &'a str,
    /// The duration of each sample in seconds.
    weights: Vec<f64>,
}

/// The JSON file. `rate` is the number of samples of each worker per second.
///
/// # Errors
/// The samples cannot be written as JSON.
pub fn write(samples: &Samples, application: &str, rate: u32) -> Result<String, String> {
    let weight = 1.0 / f64::from(rate);
    let profiles = samples.workers.iter().map(|(worker, samples)| Profile {
        end_value: weight * samples.len() as f64,
        name: if *worker == OTHER_WORKERS { "other workers".to_owned() } else { format!("worker {worker}") },
        samples,
        start_value: 0,
        r#type: "sampled",
        unit: "seconds",
        weights: vec![weight; samples.len()],
    });
    let frames = samples.frames.iter().map(|frame| match frame.file.as_str() {
        "" => json!({ "name": frame.name }),
        file => json!({ "name": frame.label(), "file": file }),
    });
    let document = Document {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("howdah ", env!("CARGO_PKG_VERSION")),
        name: application,
        profiles: profiles.collect(),
        shared: json!({ "frames": frames.collect::<Vec<_>>() }),
    };
    serde_json::to_string(&document).map_err(|error| format!("cannot write the samples as JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::profile::samples::tests::SAMPLES;

    #[test]
    fn each_worker_has_a_profile() {
        let text = write(&Samples::read(SAMPLES), "shop", 10).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document.pointer("/profiles/0/samples").unwrap().as_array().unwrap().len(), 2);
        let expected = json!({ "endValue": 0.1, "name": "worker 8", "samples": [[2, 1]], "startValue": 0, "type": "sampled",
            "unit": "seconds", "weights": [0.1] });
        assert_eq!(document.pointer("/profiles/1").unwrap(), &expected);
        assert_eq!(document.pointer("/shared/frames/1").unwrap(), &json!({ "name": "sleep" }));
        assert!(document["$schema"].is_string());
    }
}
