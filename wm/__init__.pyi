from wm.errors import WmError as WmError
from wm.pipeline.functions import collect as collect
from wm.pipeline.functions import train_controller as train_controller
from wm.pipeline.functions import train_mdnrnn as train_mdnrnn
from wm.pipeline.functions import train_vae as train_vae
from wm.pipeline.stage import Result as Result
from wm.runtime import Runtime as Runtime
from wm.world.acting import Memory as Memory
from wm.world.dreaming import Dream as Dream
from wm.world.evaluation import Evaluation as Evaluation
from wm.world.loading import load as load
from wm.world.world import World as World

__version__: str
DISTRIBUTION: str
