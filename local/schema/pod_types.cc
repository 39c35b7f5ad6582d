#include "local/schema/built_in_types.h"

namespace lockstep::local {
namespace {

constexpr TypeRow kRows[] = {
    {"core", "Affinity",
     "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity"},
    {"core", "AppArmorProfile", "localhostProfile:string type:string!"},
    {"core", "CSIVolumeSource",
     "driver:string! fsType:string nodePublishSecretRef:LocalObjectReference readOnly:bool "
     "volumeAttributes:map[string]"},
    {"core", "Capabilities", "add:[]string drop:[]string"},
    {"core", "ConfigMapEnvSource", "name:string optional:bool"},
    {"core", "ConfigMapKeySelector", "~ key:string! name:string optional:bool"},
    {"core", "ConfigMapProjection", "items:[]KeyToPath name:string optional:bool"},
    {"core", "ConfigMapVolumeSource",
     "defaultMode:int32 items:[]KeyToPath name:string optional:bool"},
    {"core", "Container",
     "args:[]string command:[]string env:[]EnvVar/name envFrom:[]EnvFromSource image:string "
     "imagePullPolicy:string lifecycle:Lifecycle livenessProbe:Probe name:string! "
     "ports:[]ContainerPort/containerPort@containerPort,protocol readinessProbe:Probe "
     "resizePolicy:[]ContainerResizePolicy resources:ResourceRequirements restartPolicy:string "
     "securityContext:SecurityContext startupProbe:Probe stdin:bool stdinOnce:bool "
     "terminationMessagePath:string terminationMessagePolicy:string tty:bool "
     "volumeDevices:[]VolumeDevice/devicePath volumeMounts:[]VolumeMount/mountPath "
     "workingDir:string"},
    {"core", "ContainerPort",
     "containerPort:int32! hostIP:string hostPort:int32 name:string protocol:string=TCP"},
    {"core", "ContainerResizePolicy", "resourceName:string! restartPolicy:string!"},
    {"core", "ContainerState",
     "running:ContainerStateRunning terminated:ContainerStateTerminated "
     "waiting:ContainerStateWaiting"},
    {"core", "ContainerStateRunning", "startedAt:time"},
    {"core", "ContainerStateTerminated",
     "containerID:string exitCode:int32! finishedAt:time message:string reason:string "
     "signal:int32 startedAt:time"},
    {"core", "ContainerStateWaiting", "message:string reason:string"},
    {"core", "ContainerStatus",
     "allocatedResources:map[quantity] allocatedResourcesStatus:any containerID:string "
     "image:string! imageID:string! lastState:ContainerState name:string! ready:bool! "
     "resources:ResourceRequirements restartCount:int32! started:bool state:ContainerState "
     "user:any volumeMounts:[]VolumeMountStatus/mountPath"},
    {"core", "DownwardAPIProjection", "items:[]DownwardAPIVolumeFile"},
    {"core", "DownwardAPIVolumeFile",
     "fieldRef:ObjectFieldSelector mode:int32 path:string! "
     "resourceFieldRef:ResourceFieldSelector"},
    {"core", "DownwardAPIVolumeSource", "defaultMode:int32 items:[]DownwardAPIVolumeFile"},
    {"core", "EmptyDirVolumeSource", "medium:string sizeLimit:quantity"},
    {"core", "EnvFromSource",
     "configMapRef:ConfigMapEnvSource prefix:string secretRef:SecretEnvSource"},
    {"core", "EnvVar", "name:string! value:string valueFrom:EnvVarSource"},
    {"core", "EnvVarSource",
     "configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:any "
     "resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector"},
    {"core", "EphemeralContainer",
     "args:[]string command:[]string env:[]EnvVar/name envFrom:[]EnvFromSource image:string "
     "imagePullPolicy:string lifecycle:Lifecycle livenessProbe:Probe name:string! "
     "ports:[]ContainerPort/containerPort@containerPort,protocol readinessProbe:Probe "
     "resizePolicy:[]ContainerResizePolicy resources:ResourceRequirements restartPolicy:string "
     "securityContext:SecurityContext startupProbe:Probe stdin:bool stdinOnce:bool "
     "targetContainerName:string terminationMessagePath:string terminationMessagePolicy:string "
     "tty:bool volumeDevices:[]VolumeDevice/devicePath volumeMounts:[]VolumeMount/mountPath "
     "workingDir:string"},
    {"core", "EphemeralVolumeSource",
     "readOnly:bool volumeClaimTemplate:PersistentVolumeClaimTemplate"},
    {"core", "ExecAction", "command:[]string"},
    {"core", "GRPCAction", "port:int32! service:string"},
    {"core", "HTTPGetAction",
     "host:string httpHeaders:[]HTTPHeader path:string port:intOrString! scheme:string"},
    {"core", "HTTPHeader", "name:string! value:string!"},
    {"core", "HostAlias", "hostnames:[]string ip:string"},
    {"core", "HostIP", "ip:string!"},
    {"core", "HostPathVolumeSource", "path:string! type:string"},
    {"core", "ImageVolumeSource", "pullPolicy:string reference:string"},
    {"core", "KeyToPath", "key:string! mode:int32 path:string!"},
    {"core", "Lifecycle", "postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:string"},
    {"core", "LifecycleHandler",
     "exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction"},
    {"core", "LocalObjectReference", "~ name:string"},
    {"core", "NFSVolumeSource", "path:string! readOnly:bool server:string!"},
    {"core", "NodeAffinity",
     "preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm "
     "requiredDuringSchedulingIgnoredDuringExecution:NodeSelector"},
    {"core", "NodeSelector", "~ nodeSelectorTerms:[]NodeSelectorTerm!"},
    {"core", "NodeSelectorRequirement", "key:string! operator:string! values:[]string"},
    {"core", "NodeSelectorTerm",
     "~ matchExpressions:[]NodeSelectorRequirement matchFields:[]NodeSelectorRequirement"},
    {"core", "ObjectFieldSelector", "~ apiVersion:string fieldPath:string!"},
    {"core", "PersistentVolumeClaimSpec",
     "accessModes:[]string dataSource:TypedLocalObjectReference dataSourceRef:any "
     "resources:ResourceRequirements selector:LabelSelector storageClassName:string "
     "volumeAttributesClassName:string volumeMode:string volumeName:string"},
    {"core", "PersistentVolumeClaimTemplate",
     "metadata:ObjectMeta spec:PersistentVolumeClaimSpec!"},
    {"core", "PersistentVolumeClaimVolumeSource", "claimName:string! readOnly:bool"},
    {"core", "Pod", "metadata:ObjectMeta spec:PodSpec status:PodStatus"},
    {"core", "PodAffinity",
     "preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm "
     "requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm"},
    {"core", "PodAffinityTerm",
     "labelSelector:LabelSelector matchLabelKeys:[]string mismatchLabelKeys:[]string "
     "namespaceSelector:LabelSelector namespaces:[]string topologyKey:string!"},
    {"core", "PodAntiAffinity",
     "preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm "
     "requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm"},
    {"core", "PodCondition",
     "lastProbeTime:time lastTransitionTime:time message:string observedGeneration:int64 "
     "reason:string status:string! type:string!"},
    {"core", "PodDNSConfig", "nameservers:[]string options:[]PodDNSConfigOption searches:[]string"},
    {"core", "PodDNSConfigOption", "name:string value:string"},
    {"core", "PodIP", "ip:string"},
    {"core", "PodOS", "name:string!"},
    {"core", "PodReadinessGate", "conditionType:string!"},
    {"core", "PodResourceClaim",
     "name:string! resourceClaimName:string resourceClaimTemplateName:string"},
    {"core", "PodResourceClaimStatus", "name:string! resourceClaimName:string"},
    {"core", "PodSchedulingGate", "name:string!"},
    {"core", "PodSecurityContext",
     "appArmorProfile:AppArmorProfile fsGroup:int64 fsGroupChangePolicy:string "
     "runAsGroup:int64 runAsNonRoot:bool runAsUser:int64 seLinuxChangePolicy:string "
     "seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups:[]int64 "
     "supplementalGroupsPolicy:string sysctls:[]Sysctl "
     "windowsOptions:WindowsSecurityContextOptions"},
    {"core", "PodSpec",
     "activeDeadlineSeconds:int64 affinity:Affinity automountServiceAccountToken:bool "
     "containers:[]Container/name! dnsConfig:PodDNSConfig dnsPolicy:string "
     "enableServiceLinks:bool ephemeralContainers:[]EphemeralContainer/name "
     "hostAliases:[]HostAlias/ip hostIPC:bool hostNetwork:bool hostPID:bool hostUsers:bool "
     "hostname:string hostnameOverride:string imagePullSecrets:[]LocalObjectReference/name "
     "initContainers:[]Container/name nodeName:string nodeSelector:map[string]~ os:PodOS "
     "overhead:map[quantity] preemptionPolicy:string priority:int32 priorityClassName:string "
     "readinessGates:[]PodReadinessGate resourceClaims:[]PodResourceClaim/name+ "
     "resources:ResourceRequirements restartPolicy:string runtimeClassName:string "
     "schedulerName:string schedulingGates:[]PodSchedulingGate/name "
     "securityContext:PodSecurityContext serviceAccount:string serviceAccountName:string "
     "setHostnameAsFQDN:bool shareProcessNamespace:bool subdomain:string "
     "terminationGracePeriodSeconds:int64 tolerations:[]Toleration "
     "topologySpreadConstraints:[]TopologySpreadConstraint/"
     "topologyKey@topologyKey,whenUnsatisfiable "
     "volumes:[]Volume/name+"},
    {"core", "PodStatus",
     "conditions:[]PodCondition/type containerStatuses:[]ContainerStatus "
     "ephemeralContainerStatuses:[]ContainerStatus hostIP:string hostIPs:[]HostIP/ip "
     "initContainerStatuses:[]ContainerStatus message:string nominatedNodeName:string "
     "observedGeneration:int64 phase:string podIP:string podIPs:[]PodIP/ip qosClass:string "
     "reason:string resize:string resourceClaimStatuses:[]PodResourceClaimStatus/name+ "
     "startTime:time"},
    {"core", "PreferredSchedulingTerm", "preference:NodeSelectorTerm! weight:int32!"},
    {"core", "Probe",
     "exec:ExecAction failureThreshold:int32 grpc:GRPCAction httpGet:HTTPGetAction "
     "initialDelaySeconds:int32 periodSeconds:int32 successThreshold:int32 "
     "tcpSocket:TCPSocketAction terminationGracePeriodSeconds:int64 timeoutSeconds:int32"},
    {"core", "ProjectedVolumeSource", "defaultMode:int32 sources:[]VolumeProjection"},
    {"core", "ResourceClaim", "name:string! request:string"},
    {"core", "ResourceFieldSelector", "~ containerName:string divisor:quantity resource:string!"},
    {"core", "ResourceRequirements",
     "claims:[]ResourceClaim@name limits:map[quantity] requests:map[quantity]"},
    {"core", "SELinuxOptions", "level:string role:string type:string user:string"},
    {"core", "SeccompProfile", "localhostProfile:string type:string!"},
    {"core", "SecretEnvSource", "name:string optional:bool"},
    {"core", "SecretKeySelector", "~ key:string! name:string optional:bool"},
    {"core", "SecretProjection", "items:[]KeyToPath name:string optional:bool"},
    {"core", "SecretVolumeSource",
     "defaultMode:int32 items:[]KeyToPath optional:bool secretName:string"},
    {"core", "SecurityContext",
     "allowPrivilegeEscalation:bool appArmorProfile:AppArmorProfile capabilities:Capabilities "
     "privileged:bool procMount:string readOnlyRootFilesystem:bool runAsGroup:int64 "
     "runAsNonRoot:bool runAsUser:int64 seLinuxOptions:SELinuxOptions "
     "seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions"},
    {"core", "ServiceAccountTokenProjection",
     "audience:string expirationSeconds:int64 path:string!"},
    {"core", "SleepAction", "seconds:int64!"},
    {"core", "Sysctl", "name:string! value:string!"},
    {"core", "TCPSocketAction", "host:string port:intOrString!"},
    {"core", "Toleration",
     "effect:string key:string operator:string tolerationSeconds:int64 value:string"},
    {"core", "TopologySpreadConstraint",
     "labelSelector:LabelSelector matchLabelKeys:[]string maxSkew:int32! minDomains:int32 "
     "nodeAffinityPolicy:string nodeTaintsPolicy:string topologyKey:string! "
     "whenUnsatisfiable:string!"},
    {"core", "TypedLocalObjectReference", "~ apiGroup:string kind:string! name:string!"},
    {"core", "Volume",
     "awsElasticBlockStore:any azureDisk:any azureFile:any cephfs:any cinder:any "
     "configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource "
     "emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:any flexVolume:any "
     "flocker:any gcePersistentDisk:any gitRepo:any glusterfs:any "
     "hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:any name:string! "
     "nfs:NFSVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource "
     "photonPersistentDisk:any portworxVolume:any projected:ProjectedVolumeSource quobyte:any "
     "rbd:any scaleIO:any secret:SecretVolumeSource storageos:any vsphereVolume:any"},
    {"core", "VolumeDevice", "devicePath:string! name:string!"},
    {"core", "VolumeMount",
     "mountPath:string! mountPropagation:string name:string! readOnly:bool "
     "recursiveReadOnly:string subPath:string subPathExpr:string"},
    {"core", "VolumeMountStatus",
     "mountPath:string! name:string! readOnly:bool recursiveReadOnly:string"},
    {"core", "VolumeProjection",
     "clusterTrustBundle:any configMap:ConfigMapProjection downwardAPI:DownwardAPIProjection "
     "podCertificate:any secret:SecretProjection "
     "serviceAccountToken:ServiceAccountTokenProjection"},
    {"core", "WeightedPodAffinityTerm", "podAffinityTerm:PodAffinityTerm! weight:int32!"},
    {"core", "WindowsSecurityContextOptions",
     "gmsaCredentialSpec:string gmsaCredentialSpecName:string hostProcess:bool "
     "runAsUserName:string"},
};

}  // namespace

std::span<const TypeRow> pod_types() {
  return kRows;
}

}  // namespace lockstep::local
