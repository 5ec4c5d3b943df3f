//! `/metrics/cadvisor`: every cgroup with all its figures, under the names dashboards have asked
//! for since cAdvisor. Pure.
//!
//! In: one whole reading, the pods that lend names to cgroups, the machine. Out: Prometheus' text.
//! [`table`] says which family shows what. One label text per cgroup is made once and used for all
//! its families: at a hundred pods there are some fifteen thousand lines. Refuses: families that
//! this kernel gives no figures for.

mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Write as _;

use ferrolet_ports::{CgroupFigures, DeviceFigures, UsageFigures, Whose};
use ferrolet_types::{Pod, Timestamp};

use self::table::{FAMILIES, Family, MACHINE, Values};
use super::Machine;
use super::text::escaped;
use crate::target::{RunningName, running_names};

/// About as much text as one cgroup makes.
const LARGEST_ROW: usize = 14_000;

/// One cgroup with its names.
pub(super) struct Row<'a> {
    labels: String,
    figures: &'a CgroupFigures,
    started: Option<Timestamp>,
    now: Timestamp,
    /// What ends a line of this reading: the moment it was read at.
    at: String,
    /// Whether its network is shown: once for each pod.
    has_network: bool,
}

/// Everything cAdvisor would show.
pub(super) fn write(
    figures: Option<&UsageFigures>,
    pods: &[Pod],
    machine: &Machine,
    now: Timestamp,
) -> String {
    let mut out = String::new();
    version(machine, &mut out);
    if let Some(figures) = figures {
        let rows = rows(figures, pods, now);
        out.reserve(rows.len() * LARGEST_ROW);
        for family in FAMILIES {
            write_family(family, &rows, figures, &mut out);
        }
    }
    let failed = i32::from(figures.is_none());
    head(
        "container_scrape_error",
        "gauge",
        "1 when the figures of containers could not be read, else 0.",
        &mut out,
    );
    line(&mut out, format_args!("container_scrape_error {failed}"));
    machine_families(machine, &mut out);
    out
}

fn rows<'a>(figures: &'a UsageFigures, pods: &[Pod], now: Timestamp) -> Vec<Row<'a>> {
    let known: HashMap<&str, (&Pod, Vec<RunningName<'_>>)> = pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, (pod, running_names(pod)))))
        .collect();
    let rows = figures.cgroups.iter().filter_map(|cgroup| {
        let (mut namespace, mut pod_name) = ("", "");
        let (mut container, mut name, mut image) = ("", "", "");
        let mut started = None;
        if let Whose::Pod(uid) | Whose::Container(uid, _) = &cgroup.whose {
            // A cgroup without a pod is somebody's left-over, about to go.
            let (pod, names) = known.get(uid.as_str())?;
            namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            pod_name = pod.metadata.name.as_deref().unwrap_or_default();
            if let Whose::Container(_, id) = &cgroup.whose {
                name = id.as_str();
                // The sandbox is the one that the status does not name.
                if let Some(running) = names.iter().find(|it| it.id == id.as_str()) {
                    (container, image) = (running.name, running.image);
                    started = running.started;
                }
            }
        }
        let labels = format!(
            "container=\"{container}\",id=\"{}\",image=\"{}\",name=\"{name}\",namespace=\"{namespace}\",pod=\"{pod_name}\"",
            escaped(&cgroup.path),
            escaped(image),
        );
        // All containers of a pod share one network, which is the sandbox's.
        let has_network = container.is_empty();
        Some(Row {
            labels,
            figures: cgroup,
            started,
            now,
            at: millis(cgroup.usage.at).to_string(),
            has_network,
        })
    });
    rows.collect()
}

/// Writes one sample at a time: a name, labels, a number, a moment.
struct Line<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Line<'_> {
    fn sample(&mut self, labels: &str, more: &[(&str, &str)], value: f64, at: &str) {
        let out = &mut *self.out;
        out.push_str(self.name);
        out.push('{');
        out.push_str(labels);
        for (name, value) in more {
            out.push(',');
            out.push_str(name);
            out.push_str("=\"");
            out.push_str(&escaped(value));
            out.push('"');
        }
        out.push_str("} ");
        number(value, out);
        if !at.is_empty() {
            out.push(' ');
            out.push_str(at);
        }
        out.push('\n');
    }
}

/// A number as Prometheus reads it. Nearly all are whole, and those are written without the care
/// that fractions need.
fn number(value: f64, out: &mut String) {
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    if value.fract() != 0.0 || !(0.0..LARGEST).contains(&value) {
        write!(out, "{value}").expect("a String takes every text");
        return;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative and below 2^53"
    )]
    let mut rest = value as u64;
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[first..]).unwrap_or("0"));
}

fn write_family(family: &Family, rows: &[Row<'_>], figures: &UsageFigures, out: &mut String) {
    let before = out.len();
    head(family.name, family.kind, family.help, out);
    let after_head = out.len();
    let name = family.name;
    let mut line = Line { out, name };
    for row in rows {
        write_row(family.values, row, figures, &mut line);
    }
    if line.out.len() == after_head {
        line.out.truncate(before);
    }
}

/// One cgroup's lines of a family.
fn write_row(values: Values, row: &Row<'_>, figures: &UsageFigures, line: &mut Line<'_>) {
    let (labels, at) = (row.labels.as_str(), row.at.as_str());
    let mut labelled = |more: &[(&str, &str)], value: f64| line.sample(labels, more, value, at);
    match values {
        Values::Fixed(value) => {
            if let Some(value) = value(row) {
                line.sample(labels, &[], value, "");
            }
        }
        Values::Read(value) => {
            if let Some(value) = value(row) {
                labelled(&[], value);
            }
        }
        Values::Seen(value) => {
            let now = millis(row.now).to_string();
            line.sample(labels, &[], value(row), &now);
        }
        Values::Total(value) => {
            if let Some(value) = value(row) {
                labelled(&[("cpu", "total")], value);
            }
        }
        Values::Faults => {
            if let Some(memory) = row.figures.usage.memory {
                for (kind, value) in
                    [("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults)]
                {
                    for scope in ["container", "hierarchy"] {
                        labelled(&[("failure_type", kind), ("scope", scope)], value as f64);
                    }
                }
            }
        }
        Values::OpenFiles => {
            if let Some(most) = row.figures.processes.max_open_files {
                labelled(&[("ulimit", "max_open_files")], most as f64);
            }
        }
        Values::Network(value) => {
            let interfaces = row.figures.interfaces.iter();
            for interface in interfaces.filter(|_| row.has_network) {
                labelled(&[("interface", &interface.name)], value(interface) as f64);
            }
        }
        Values::Disk(of_disk, _) if row.figures.whose == Whose::Node => {
            for disk in &figures.disks {
                if let Some(value) = of_disk(disk) {
                    labelled(&[("device", &disk.device)], value);
                }
            }
        }
        Values::Disk(_, of_device) => {
            for device in row.figures.devices.iter().filter(|it| !it.name.is_empty()) {
                if let Some(value) = of_device(device) {
                    labelled(&[("device", &device.name)], value);
                }
            }
        }
        Values::DeviceBytes(value) => {
            for device in row.figures.devices.iter().filter(|it| !it.name.is_empty()) {
                labelled(&[("device", &device.name)], value(device) as f64);
            }
        }
        Values::Operations => write_operations(&row.figures.devices, labelled),
    }
}

/// Bytes by device and operation.
fn write_operations(devices: &[DeviceFigures], mut labelled: impl FnMut(&[(&str, &str)], f64)) {
    for device in devices {
        let (major, minor) = (device.major.to_string(), device.minor.to_string());
        for (operation, value) in [("Read", device.read_bytes), ("Write", device.write_bytes)] {
            let more = [
                ("device", device.name.as_str()),
                ("major", &major),
                ("minor", &minor),
                ("operation", operation),
            ];
            labelled(&more, value as f64);
        }
    }
}

fn version(machine: &Machine, out: &mut String) {
    let name = "cadvisor_version_info";
    head(name, "gauge", "Always 1; the labels name kernel and distribution.", out);
    let (kernel, os) = (escaped(&machine.kernel_version), escaped(&machine.os_image));
    line(
        out,
        format_args!(
            "{name}{{cadvisorRevision=\"\",cadvisorVersion=\"\",dockerVersion=\"\",kernelVersion=\"{kernel}\",osVersion=\"{os}\"}} 1"
        ),
    );
}

fn machine_families(machine: &Machine, out: &mut String) {
    let labels = format!(
        "boot_id=\"{}\",machine_id=\"{}\",system_uuid=\"{}\"",
        escaped(&machine.boot_id),
        escaped(&machine.machine_id),
        escaped(&machine.system_uuid)
    );
    for (name, help, value) in MACHINE {
        head(name, "gauge", help, out);
        let value = value(machine);
        if *name == "machine_nvm_capacity" {
            for mode in ["app_direct_mode", "memory_mode"] {
                line(out, format_args!("{name}{{{labels},mode=\"{mode}\"}} {value}"));
            }
        } else {
            line(out, format_args!("{name}{{{labels}}} {value}"));
        }
    }
    head(
        "machine_scrape_error",
        "gauge",
        "1 when the machine's facts could not be read, else 0.",
        out,
    );
    line(out, format_args!("machine_scrape_error 0"));
}

fn head(name: &str, kind: &str, help: &str, out: &mut String) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a String takes every text");
}

fn millis(moment: Timestamp) -> i64 {
    moment.0.as_millisecond()
}
