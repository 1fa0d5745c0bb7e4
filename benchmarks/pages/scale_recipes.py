"""The parts of docs/scale.md that are written, not computed: how to start workers, and what torchrun does."""

TORCHRUN = """## V and M on several processes

`torchrun` starts processes that train V or M together, here four on one machine:

```
torchrun --nproc-per-node 4 -m -- stages.cli train-vae --env Pong
torchrun --nproc-per-node 4 --no-python -- wm train-mdnrnn --env Pong
```

After `--` all words are ours; without it torchrun takes `--run` for an option of its own.

Every batch is split into eight pieces. Each process reads its own pieces and computes their gradients; these are added
in the order of the pieces ([0026](decisions/0026-ranks-add-eight-pieces.md)). The first process validates, logs, writes
checkpoints and publishes, and alone prints.

| run | weights |
| --- | --- |
| torchrun with 1, 2, 4 or 8 processes on the CPU | the same, bit for bit |
| alone, with `--set pieces=8` and `OMP_NUM_THREADS=1` | the same |
| alone, without `pieces` | equal but for rounding: sums are in another order, and it is faster |
| on processors or GPUs of another kind, or with other numbers of threads | equal but for rounding |

So `pieces` is a setting of the artifact's recipe, and an artifact with 8 pieces is another one than without.
`--set pieces=16` is for 16 processes. A batch needs at least as many rows as pieces. A process takes one thread, or
`OMP_NUM_THREADS`.

If a process ends, or does not answer for `--worker-timeout` seconds, all end with a sentence and exit code 70. Then
torchrun adds its report, and its own exit code is 1. The same command resumes from the last checkpoint with any number
of processes, or alone with `--set pieces=8`. SIGTERM and SIGINT save the step first.

All processes need the same data and run folders, shared or copied; only the first writes. A process that streams frames
from disk decodes whole groups of chunks, and copies its own rows out of them. With `--device cuda` each process takes a
GPU of its own and gradients go by NCCL; that was written for, but not tested. `--memory-limit` is the limit
of each process: the first that exceeds it ends all, with a checkpoint.

What one process sends in a step, with eight pieces:
"""

RECIPES = """## Recipes

`WM_EXECUTOR`, or the option `--executor`, names a scheduler of Dask. All sides need the same Python and the same
packages, with the extra `cluster`. Messages are pickled Python: use a private network, or `dask:tls://`. Episodes come
to the command, and models go to the workers, so they need no common folder. Where many workers write their parts, the
dataset is in a folder that all see under the same name, or in a store: `--data s3://bucket/prefix`. The first recipe
was run on two machines that are network namespaces of one. Of the second, dask-jobqueue's job script was made; the
third was not run.

### Two desktops

On the first one, whose name is `alpha`:

```
dask scheduler --port 8786 &
dask worker tcp://alpha:8786 --nworkers 4 --nthreads 1 &
export WM_EXECUTOR=dask:tcp://alpha:8786
wm collect --env CarRacing --episodes 10000
wm train-controller --env CarRacing
```

On the second one:

```
dask worker tcp://alpha:8786 --nworkers 8 --nthreads 1
```

V on both of them; the same command on each:

```
torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint alpha:29400 --rdzv-id v \\
    -m -- stages.cli train-vae --env CarRacing
```

Debian gives a machine's own name the address 127.0.1.1 in `/etc/hosts`, which no other machine reaches: "Gloo
connectFullMesh failed". Then begin each command with the machine's network interface and its address there, as in
`GLOO_SOCKET_IFNAME=eth0 torchrun --local-addr 192.168.0.10`. Where `alpha` is an address, or not what the first machine
calls itself, its command alone begins with `torchrun --rdzv-conf is_host=1`. Else all wait for two minutes, and fail.

### Slurm

dask-jobqueue submits the workers as jobs of one core. In a job or on a login node that stays:

```python
from dask_jobqueue import SLURMCluster

cluster = SLURMCluster(cores=1, processes=1, memory="2GB", walltime="04:00:00")
cluster.scale(jobs=64)
print(f"export WM_EXECUTOR=dask:{cluster.scheduler_address}")
input("Enter ends the workers. ")
```

Then, in another shell there, the line that it printed and the commands of above. A job that ends at its time limit
costs a repeated task. For V and M, in a batch script of one task a node:

```
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=4
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint "$head:29400" \\
    --rdzv-id "$SLURM_JOB_ID" -m -- stages.cli train-mdnrnn --env CarRacing
```

### Kubernetes

It takes an image with this project and its extras `cluster` and `s3`, as `docker build --build-arg EXTRAS=cluster,s3 .`
makes it, and the credentials of the store as a secret named `store`:

```yaml
apiVersion: v1
kind: Service
metadata: {name: scheduler}
spec: {selector: {app: scheduler}, ports: [{port: 8786}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: scheduler}
spec:
  replicas: 1
  selector: {matchLabels: {app: scheduler}}
  template:
    metadata: {labels: {app: scheduler}}
    spec: {containers: [{name: dask, image: "IMAGE", command: [dask, scheduler]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: workers}
spec:
  replicas: 64
  selector: {matchLabels: {app: workers}}
  template:
    metadata: {labels: {app: workers}}
    spec:
      containers:
        - name: dask
          image: "IMAGE"
          command: [dask, worker, "tcp://scheduler:8786", --nworkers, "1", --nthreads, "1"]
          envFrom: [{secretRef: {name: store}}]
          resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 2Gi}}
```

The command runs in a pod of the same image, with the same secret:

```
export WM_EXECUTOR=dask:tcp://scheduler:8786
wm collect --env CarRacing --episodes 10000 --data s3://bucket/CarRacing
```

`kubectl scale deployment workers --replicas 200` takes effect at once; the results stay the same.
"""
