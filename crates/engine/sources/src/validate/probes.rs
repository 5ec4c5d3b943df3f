//! Rules for probes and lifecycle hooks: one handler each, ports that exist, times that make sense.

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{Faults, names, text};
use crate::fault::Fault;

pub(super) fn validate(path: &str, container: &Container, grace: Option<i64>, faults: &mut Faults) {
    for (field, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        let Some(probe) = probe else { continue };
        let path = format!("{path}.{field}");
        validate_probe(&path, probe, faults);
        if field == "readinessProbe" {
            if probe.termination_grace_period_seconds.is_some() {
                let why = "may not be set for readiness probes";
                let path = format!("{path}.terminationGracePeriodSeconds");
                faults.push(Fault::forbidden(path, why));
            }
        } else if let Some(threshold) = probe.success_threshold.filter(|number| *number != 1) {
            let path = format!("{path}.successThreshold");
            faults.push(Fault::invalid(path, threshold, "must be 1"));
        }
    }
    if let Some(lifecycle) = &container.lifecycle {
        for (field, handler) in
            [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)]
        {
            if let Some(handler) = handler {
                validate_hook(&format!("{path}.lifecycle.{field}"), handler, grace, faults);
            }
        }
    }
}

fn validate_probe(path: &str, probe: &Probe, faults: &mut Faults) {
    let handlers = [
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ];
    check_one_handler(path, &handlers, faults);
    if let Some(exec) = &probe.exec {
        check_command(path, exec.command.as_deref(), faults);
    }
    if let Some(http) = &probe.http_get {
        validate_http(&format!("{path}.httpGet"), http, faults);
    }
    if let Some(tcp) = &probe.tcp_socket {
        check_port(&format!("{path}.tcpSocket.port"), &tcp.port, faults);
    }
    if let Some(grpc) = &probe.grpc {
        faults.check(format!("{path}.grpc.port"), grpc.port, names::port(grpc.port));
    }
    for (field, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        faults.check_not_negative(format!("{path}.{field}"), number.map(i64::from));
    }
    if let Some(grace) = probe.termination_grace_period_seconds.filter(|secs| *secs <= 0) {
        let path = format!("{path}.terminationGracePeriodSeconds");
        faults.push(Fault::invalid(path, grace, "must be greater than 0"));
    }
}

fn validate_hook(path: &str, handler: &LifecycleHandler, grace: Option<i64>, faults: &mut Faults) {
    let handlers = [
        ("exec", handler.exec.is_some()),
        ("httpGet", handler.http_get.is_some()),
        ("tcpSocket", handler.tcp_socket.is_some()),
        ("sleep", handler.sleep.is_some()),
    ];
    check_one_handler(path, &handlers, faults);
    if let Some(exec) = &handler.exec {
        check_command(path, exec.command.as_deref(), faults);
    }
    if let Some(http) = &handler.http_get {
        validate_http(&format!("{path}.httpGet"), http, faults);
    }
    if let Some(sleep) = &handler.sleep {
        let longest = grace.unwrap_or(30);
        if !(0..=longest).contains(&sleep.seconds) {
            let rule = format!("must be between 0 and the grace period of {longest} seconds");
            faults.push(Fault::invalid(format!("{path}.sleep.seconds"), sleep.seconds, &rule));
        }
    }
}

fn check_one_handler(path: &str, handlers: &[(&str, bool)], faults: &mut Faults) {
    let set: Vec<&str> =
        handlers.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    match set.as_slice() {
        [] => {
            let known: Vec<&str> = handlers.iter().map(|(name, _)| *name).collect();
            let problem = format!("must have one of {}", known.join(", "));
            faults.push(Fault::new(path, problem));
        }
        [_] => {}
        [_, second, ..] => {
            let why = format!("may have one handler only, has {}", set.join(" and "));
            faults.push(Fault::forbidden(format!("{path}.{second}"), &why));
        }
    }
}

fn check_command(path: &str, command: Option<&[String]>, faults: &mut Faults) {
    if command.unwrap_or_default().is_empty() {
        faults.push(Fault::required(format!("{path}.exec.command")));
    }
}

fn validate_http(path: &str, http: &HTTPGetAction, faults: &mut Faults) {
    check_port(&format!("{path}.port"), &http.port, faults);
    faults.check_word(format!("{path}.scheme"), text(&http.scheme), &["HTTP", "HTTPS"]);
}

fn check_port(path: &str, port: &IntOrString, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) => faults.check(path, *number, names::port(*number)),
        IntOrString::String(name) => faults.check(path, name, names::port_name(name)),
    }
}
