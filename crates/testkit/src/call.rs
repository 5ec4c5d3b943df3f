//! The names of everything a fake can be asked, so that faults, latencies and gauges can point at
//! it.

/// One method of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is named for the method it stands for")]
pub enum Call {
    Version,
    Status,
    List,
    ObservePod,
    Events,
    RunSandbox,
    StopSandbox,
    RemoveSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    UpdateContainer,
    AnnounceResources,
    Exec,
    SetPodCidr,
    ImageStatus,
    PullImage,
    ListImages,
    RemoveImage,
    CgroupExists,
    EnsureCgroup,
    LowerCpu,
    RemoveCgroup,
    ListCgroups,
    EnsurePodFiles,
    RemovePodFiles,
    RemoveLogs,
    ListPodFiles,
    WriteHosts,
    EnsureContainerLogs,
    NewTerminationLog,
    ReadTerminationLog,
    ReadLogTail,
    LinkContainerLog,
    RemoveContainerLog,
    EnsureVolumes,
    SubPath,
    ReleaseVolumes,
}

impl Call {
    /// True for calls that travel over the runtime's socket and fail when nobody listens there.
    pub fn is_runtime(self) -> bool {
        self <= Self::RemoveImage
    }

    /// True for runtime calls that change something; their answer takes a moment longer than their
    /// effect.
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Self::RunSandbox
                | Self::StopSandbox
                | Self::RemoveSandbox
                | Self::CreateContainer
                | Self::StartContainer
                | Self::StopContainer
                | Self::RemoveContainer
                | Self::UpdateContainer
        )
    }

    /// The name errors carry: CRI's for runtime calls, plain words for the rest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "Version",
            Self::Status => "Status",
            Self::List => "ListPodSandbox",
            Self::ObservePod => "PodSandboxStatus",
            Self::Events => "GetContainerEvents",
            Self::RunSandbox => "RunPodSandbox",
            Self::StopSandbox => "StopPodSandbox",
            Self::RemoveSandbox => "RemovePodSandbox",
            Self::CreateContainer => "CreateContainer",
            Self::StartContainer => "StartContainer",
            Self::StopContainer => "StopContainer",
            Self::RemoveContainer => "RemoveContainer",
            Self::UpdateContainer => "UpdateContainerResources",
            Self::AnnounceResources => "UpdatePodSandboxResources",
            Self::Exec => "ExecSync",
            Self::SetPodCidr => "UpdateRuntimeConfig",
            Self::ImageStatus => "ImageStatus",
            Self::PullImage => "PullImage",
            Self::ListImages => "ListImages",
            Self::RemoveImage => "RemoveImage",
            Self::CgroupExists => "look for pod cgroup",
            Self::EnsureCgroup => "make pod cgroup",
            Self::LowerCpu => "lower weight of pod cgroup",
            Self::RemoveCgroup => "remove pod cgroup",
            Self::ListCgroups => "list pod cgroups",
            Self::EnsurePodFiles => "make pod directories",
            Self::RemovePodFiles => "remove pod directories",
            Self::RemoveLogs => "remove pod logs",
            Self::ListPodFiles => "list pod directories",
            Self::WriteHosts => "write hosts file",
            Self::EnsureContainerLogs => "make log directory",
            Self::NewTerminationLog => "make termination log",
            Self::ReadTerminationLog => "read termination log",
            Self::ReadLogTail => "read log",
            Self::LinkContainerLog => "link log",
            Self::RemoveContainerLog => "remove log",
            Self::EnsureVolumes => "set up volumes",
            Self::SubPath => "prepare subPath",
            Self::ReleaseVolumes => "tear down volumes",
        }
    }
}
